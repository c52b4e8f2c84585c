"""Ready-made models, each written as a user would write it: plain `nn.Module` classes to read, copy and change."""
