"""From one call on places to tasks, a file for each family of rows: the same for eager rows and for compiled programs."""
