"""Typed streams: an entry as a value of a class. `forms` describes them; `form_choice` finds the form of a type."""
