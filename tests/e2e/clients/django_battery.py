#!/usr/bin/env python3
"""Django's two cache backends, over pymemcache and over pylibmc: every method, timeouts of each kind, sessions.

    django_battery.py HOST:PORT [--label TEXT]
"""

import django
from django.conf import settings
from django.core.cache import caches

from battery import check, eventually, main, new_key, raises, same

BACKENDS = {"pymemcache": "PyMemcacheCache", "pylibmc": "PyLibMCCache"}


def connect(host, port):
    """The backends by name. They are configured once: Django has one set of settings."""
    if not settings.configured:
        one = {"LOCATION": f"{host}:{port}", "KEY_PREFIX": "django", "VERSION": 2}
        backend = "django.core.cache.backends.memcached."
        settings.configure(
            CACHES={name: one | {"BACKEND": backend + kind} for name, kind in BACKENDS.items()}
            | {"default": one | {"BACKEND": backend + BACKENDS["pymemcache"]}},
            SECRET_KEY="none",
            SESSION_SERIALIZER="django.contrib.sessions.serializers.JSONSerializer",
        )
        django.setup()
    return caches


def check_both(name):
    """Registers a check for each backend; it is given that backend."""

    def register(function):
        for backend in BACKENDS:
            check(f"{backend}: {name}")(lambda caches, backend=backend: function(caches[backend]))
        return function

    return register


@check_both("set, get, add, delete, has_key, get_or_set")
def _(cache):
    key = new_key()
    same(cache.get(key, "default"), "default")
    for value in ("text", b"\r\nEND\r\n\0", 42, None, True, {"a": [1, None]}, "", b"", b"x" * 1_000_000):
        cache.set(key, value)
        same(cache.get(key, "default"), value)
    same(cache.add(key, 1), False)
    same(cache.has_key(key), True)
    same(cache.delete(key), True)
    same(cache.delete(key), False)
    same(cache.has_key(key), False)
    same(cache.add(key, 1), True)
    same(cache.get_or_set(key, 2), 1)
    same(cache.get_or_set(new_key(), lambda: 2), 2)


@check_both("many at once")
def _(cache):
    items = {new_key(): number for number in range(200)}
    same(cache.set_many(items), [])
    same(cache.get_many([*items, new_key()]), items)
    cache.delete_many(items)
    same(cache.get_many(items), {})


@check_both("incr, decr, versions")
def _(cache):
    key = new_key()
    raises(ValueError, cache.incr, key)
    cache.set(key, 20)
    same(cache.incr(key), 21)
    same(cache.incr(key, 10), 31)
    same(cache.decr(key), 30)
    same(cache.decr(key, 100), 0)
    same(cache.incr_version(key), 3)
    same(cache.get(key), None)
    same(cache.get(key, version=3), 0)


@check_both("a timeout of zero, and a negative one, have passed")
def _(cache):
    for timeout in (0, -1, -100):
        key, other = new_key(), new_key()
        cache.set(key, "x", timeout)
        same(cache.get(key), None, "set")
        same(cache.add(key, "x", timeout), True)
        same(cache.get(key), None, "added")
        cache.set_many({key: "x", other: "y"}, timeout)
        same(cache.get_many([key, other]), {}, "many")
    key = new_key()
    cache.set(key, "x")
    same(cache.touch(key, 0), True)
    same(cache.get(key), None, "touched")


@check_both("timeouts, short, of more than 30 days, and none")
def _(cache):
    short, long, none, touched = (new_key() for _ in range(4))
    cache.set(short, "x", 1)
    cache.set(long, "x", 60 * 60 * 24 * 30 + 1)
    cache.set(none, "x", None)
    cache.set(touched, "x", 1)
    same(cache.touch(touched, 3600), True)
    same(cache.touch(new_key()), False)
    eventually(lambda: cache.get(short) is None, "it does not expire")
    same(cache.get_many([long, none, touched]), {key: "x" for key in (long, none, touched)})


@check("sessions in the cache")
def _(caches):
    from django.contrib.sessions.backends.cache import SessionStore

    session = SessionStore()
    session["who"] = "one"
    session.save()
    same(SessionStore(session.session_key)["who"], "one")
    old = session.session_key
    session.cycle_key()
    same(SessionStore(old).get("who"), None, "the old key")
    same(SessionStore(session.session_key)["who"], "one", "the new key")
    session.flush()
    same(SessionStore(session.session_key).get("who"), None)


@check_both("clear")
def _(cache):
    key = new_key()
    cache.set(key, "x")
    cache.clear()
    same(cache.get(key), None)


if __name__ == "__main__":
    main(connect)
