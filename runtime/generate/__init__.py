"""New symbols from a trained model: sampling, beam search, and what a translation is worth."""
