"""The settings, one declaration each. `settings` joins them and holds their values; `setting_types` reads texts."""
