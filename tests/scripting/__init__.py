"""Tests of Lua scripts."""
