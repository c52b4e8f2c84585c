#!/usr/bin/env bash
# The public test suite of the array API standard, on gradlab.array_api:
#   git clone --recursive https://github.com/data-apis/array-api-tests && pip install -r array-api-tests/requirements.txt
#   tests/array_api/run.sh array-api-tests [pytest's options]
# What is skipped, and why: skips.txt beside this file. Of the dtypes uint16, uint32 and uint64 gradlab has none; the suite leaves them out.
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
cd "$1"
shift
export ARRAY_API_TESTS_MODULE=gradlab.array_api PYTHONPATH="$here/../.."
exec python -m pytest array_api_tests -q -p no:cacheprovider --disable-deadline --derandomize --max-examples 10 --skips-file "$here/skips.txt" "$@"
