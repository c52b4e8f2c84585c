"""Pictures: charts as SVG text. Needs nothing but the standard library; any program may use it."""
