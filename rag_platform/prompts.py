"""Prompt files: loaded, their placeholders checked, each with its profile id."""
