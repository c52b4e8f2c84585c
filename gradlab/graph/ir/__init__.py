"""The intermediate representation: graphs of row calls, straight lines of them, unknown sizes, and plans of memory.

Plain data without a user's code and without a device: every other room of `graph/` reads and makes it, and it knows none of them.
"""
