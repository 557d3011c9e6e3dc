"""Random conversations with two servers at once, and what of their answers must be the same.

`ascii` and `binary` make commands, valid or slightly not; `kinds` makes conversations of them and
holds them over `links`; `normal` puts out of the way what may differ between two servers.
"""
