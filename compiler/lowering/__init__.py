"""The lowering, part by part: everything of the compiler that imports torch, with `plait.compiler.lower` in front."""
