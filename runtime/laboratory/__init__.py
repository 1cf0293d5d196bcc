"""The laboratory: models measured beside each other, and beside what was derived."""
