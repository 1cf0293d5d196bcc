"""Property tests draw the same examples every time, so that a red run is a change's own; PLAIT_FUZZ=1 draws new ones."""
import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("fuzz", derandomize=False)
settings.load_profile("fuzz" if os.environ.get("PLAIT_FUZZ") else "same")
