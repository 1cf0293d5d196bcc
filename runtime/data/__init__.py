"""Data for training: real files, built-in text and synthetic tasks. Nothing is downloaded, nothing is larger in memory than it must be.

Every dataset is a pure function of its seed: `batch(step)` gives the same symbols for the same step, so that a resumed run sees
what an uninterrupted one sees. One file a kind of source; `opening` has the table of them. `ahead` prepares the next step's batch
while one runs.

An input that the loss reads by `next()` ("ahead") is given n + 1 symbols: the model reads the first n and is measured on the last n.
Otherwise windows have n symbols. A symbol that is read but is no target is written as its complement: -1 - symbol. What is padding
in a padded input is -1."""
from plait.runtime.data.dataset import Dataset, fingerprint
from plait.runtime.data.need import Need, Slot
from plait.runtime.data.opening import READERS, open, open_for
from plait.runtime.data.tasks import Generated
from plait.runtime.data.text import Stream

__all__ = ["Dataset", "Generated", "Need", "READERS", "Slot", "Stream", "fingerprint", "open", "open_for"]
