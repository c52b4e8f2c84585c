"""How long collectives wait by default."""

from __future__ import annotations

from datetime import timedelta

default_pg_timeout = timedelta(minutes=10)
default_pg_nccl_timeout = default_pg_timeout
