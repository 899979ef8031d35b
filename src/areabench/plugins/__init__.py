"""The user's own parts, which an experiment names: found, held against their settings, called, compared and trusted.

May import settings and what lies below; it knows no part of the package.
"""
