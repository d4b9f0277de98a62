// Compiled once; every target that links LibTorch reuses its precompiled header.
