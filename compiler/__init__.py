"""Spec to Graph, Graph to Costs, Graph to GraphModule. Only `lower` and `lowering` import torch."""
