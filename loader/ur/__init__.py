"""Unified Runtime adapters: found, bound, adapted, selected, validated. PI plugins are found and opened here too."""
