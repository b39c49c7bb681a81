"""The modules that come with rillet; the engine imports one when it is loaded."""
