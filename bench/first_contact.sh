#!/usr/bin/env bash
# The first nine minutes with a GPU: what is there, a ladder from the driver to a captured step, the numbers that decide, parity of every row.
#   bench/first_contact.sh                  OUT=folder for what it finds (8 files at most); PYTHON=the Python to use
#   bench/first_contact.sh --emulated       the same sections, shortened, on the emulated GPU
#   bench/first_contact.sh --only ladder    sections whose name has a match
# Before, on a machine without a GPU, so that nothing is compiled there:  python -m gradlab.testing.warm --arch 90 --out build/cubins
# Copy what you learned into bench/RESULTS.md: card, date, command, table.
set -u
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" bench/contact/sections.py "$@"
