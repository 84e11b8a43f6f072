"""The codecs against their references."""
