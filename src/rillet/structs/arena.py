"""An arena: many small byte strings in pages of 64 KiB, instead of one Python object each.

    page   +---------+---------+------+------+------+------+-----------+
           | fill u32| live u32| item | item | item | item | free ...  |
           +---------+---------+------+------+------+------+-----------+
           0         4         8                           fill        64 KiB

The *place* of an item is `page << 16 | offset`. Items are allocated at `fill` of the current page; an item of more
than 16 KiB has its own page. `live` counts the bytes of items that are in use. A page whose items are all free
is freed, and its number is used again. The first page starts with 128 bytes and doubles, so a small arena is small.

An item that is freed leaves a gap. The owner moves items from pages with many gaps (structs/dict.py), because only
the owner can correct the references to an item. `live` and `dead` count the bytes of all pages.

Costs: allocate and free O(1), and a bytes copy when the first page doubles. Rejected alternatives: free lists by size
(gaps stay where values change their sizes), and one page per size class (a set of 200 members would have many pages).
"""

from __future__ import annotations

from rillet._cython import cython, readonly
from rillet.structs.block_list import BlockList

PAGE_SIZE = 1 << 16
PAGE_HEADER = 8
LARGE = 1 << 14
"""Items above this size have a page of their own."""
_PAGE_SIZE = cython.declare(cython.Py_ssize_t, 1 << 16)
_HEADER = cython.declare(cython.Py_ssize_t, 8)
_FIRST_PAGE = cython.declare(cython.Py_ssize_t, 128)
_LARGE = cython.declare(cython.Py_ssize_t, 1 << 14)
_MAX_ITEM = cython.declare(cython.Py_ssize_t, (1 << 32) - 9)
_MAX_PAGES = cython.declare(cython.Py_ssize_t, (1 << 24) - 1)  # a place has 40 bits, and not all of them are 1


@cython.final
@cython.cclass
class Arena:
    """Pages of items. `current` is the page that receives small items, or -1."""

    __slots__ = ("current", "dead", "live", "pages", "vacant")
    pages: readonly[BlockList]
    current: readonly[cython.Py_ssize_t]
    live: readonly[cython.Py_ssize_t]
    dead: readonly[cython.Py_ssize_t]
    vacant: readonly[list[int]]

    def __init__(self) -> None:
        self.pages = BlockList()
        self.current = -1
        self.live = 0
        self.dead = 0
        self.vacant = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def allocate(self, size: cython.Py_ssize_t) -> cython.longlong:
        """Return the place of a new item of `size` bytes; its former bytes are undefined. O(1)"""
        page: cython.Py_ssize_t = self.current
        if size > _LARGE:
            if size > _MAX_ITEM:
                raise MemoryError("an item of a dict is limited to 4 GiB")
            page = self._new_page(_HEADER + size)
        fill: cython.Py_ssize_t = _HEADER
        if page >= 0:
            fill = self.page_fill(page)
        if page < 0 or fill + size > len(self.pages.blocks[page]):
            if page >= 0 and fill + size <= _PAGE_SIZE:
                room: cython.Py_ssize_t = 2 * len(self.pages.blocks[page])
                while room < fill + size:
                    room *= 2
                self.pages.enlarge(page, room)
            else:
                room = _PAGE_SIZE if page >= 0 else _FIRST_PAGE
                while room < _HEADER + size:
                    room *= 2
                page = self._new_page(room)
                self.current = page
                fill = _HEADER
        self._write(page, 0, fill + size)
        self._write(page, 4, self.page_live(page) + size)
        self.live += size
        place: cython.longlong = page
        return (place << 16) | fill

    @cython.cfunc
    def resize_last(self, place: cython.longlong, size: cython.Py_ssize_t, to: cython.Py_ssize_t) -> cython.bint:
        """Change the size of an item in place; return False unless it is the last of the current page and fits. O(1)"""
        page: cython.Py_ssize_t = place >> 16
        offset: cython.Py_ssize_t = place & 0xFFFF
        if page != self.current or offset + size != self.page_fill(page) or to > _LARGE:
            return False
        if offset + to > len(self.pages.blocks[page]):
            return False
        self._write(page, 0, offset + to)
        self._write(page, 4, self.page_live(page) + to - size)
        self.live += to - size
        return True

    @cython.cfunc
    def free(self, place: cython.longlong, size: cython.Py_ssize_t) -> cython.bint:
        """Free an item of `size` bytes. Return True if its page is empty now and was freed. O(1)"""
        page: cython.Py_ssize_t = place >> 16
        live: cython.Py_ssize_t = self.page_live(page) - size
        self.live -= size
        self.dead += size
        self._write(page, 4, live)
        if live > 0:
            return False
        self.dead -= self.page_fill(page) - _HEADER
        self._write(page, 0, _HEADER)
        if page == self.current:
            return False
        self.pages.drop(page)
        self.vacant.append(page)
        return True

    @cython.cfunc
    def leave_current(self) -> cython.bint:
        """Let the next item begin a new page if more than a tenth of the current page's bytes are dead. O(1)"""
        used: cython.Py_ssize_t = self.page_fill(self.current) - _HEADER
        if self.page_live(self.current) > 0 and 10 * self.page_live(self.current) < 9 * used:
            self.current = -1
        return True

    @cython.cfunc
    def _new_page(self, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        page: cython.Py_ssize_t
        if self.vacant:
            page = self.vacant[len(self.vacant) - 1]
            self.pages.put(page, size)
            self.vacant.pop()  # after the allocation, which may fail
        else:
            if len(self.pages.blocks) >= _MAX_PAGES:
                raise MemoryError("a dict has more than 2**24 pages of keys")
            page = self.pages.append(size)
        self._write(page, 0, _HEADER)
        return page

    @cython.cfunc
    @cython.exceptval(check=False)
    def page_fill(self, page: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the offset at which the items of a page end."""
        if cython.compiled:
            return cython.cast(cython.p_uint, self.pages.at[page])[0]
        return int.from_bytes(self.pages.blocks[page][:4], "little")

    @cython.cfunc
    @cython.exceptval(check=False)
    def page_live(self, page: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return how many bytes of a page are in use by items."""
        if cython.compiled:
            return cython.cast(cython.p_uint, self.pages.at[page])[1]
        return int.from_bytes(self.pages.blocks[page][4:8], "little")

    @cython.cfunc
    def _write(self, page: cython.Py_ssize_t, offset: cython.Py_ssize_t, value: cython.Py_ssize_t) -> cython.bint:
        """Write a number of the page's header."""
        if cython.compiled:
            cython.cast(cython.p_uint, self.pages.at[page] + offset)[0] = value
        else:
            self.pages.blocks[page][offset : offset + 4] = value.to_bytes(4, "little")
        return True

    def copy(self) -> Arena:
        """Return a copy with the same places. O(bytes)"""
        twin = Arena()
        twin.pages = self.pages.copy()
        twin.current, twin.live, twin.dead, twin.vacant = self.current, self.live, self.dead, self.vacant[:]
        return twin

    def check(self) -> None:
        """Raise AssertionError unless the counts of the pages add up. O(pages)"""
        self.pages.check()
        live = filled = 0
        for page, block in enumerate(self.pages.blocks):
            if block is None:
                assert page in self.vacant and page != self.current
                continue
            assert _HEADER + self.page_live(page) <= self.page_fill(page) <= len(block)
            assert page == self.current or self.page_live(page) > 0
            live += self.page_live(page)
            filled += self.page_fill(page) - _HEADER
        assert live == self.live and filled - live == self.dead
        assert len(self.vacant) == sum(block is None for block in self.pages.blocks)
