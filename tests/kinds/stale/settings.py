"""A module of settings, as users have them."""

K = 2.0
TABLE = {"k": 2.0, "deep": {"k": 2.0}}
LIST = [2.0]


def helper(x):
    return x * K


def triple(x):
    return x * 3.0


class Config:
    k = 2.0
