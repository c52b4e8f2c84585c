"""Training within a stated memory: which parts of a model are computed again in backward, and what waits in the host's memory."""

from gradlab.utils.memory_budget.fitting import MemoryPlan as MemoryPlan, fit_memory as fit_memory

__all__ = ["MemoryPlan", "fit_memory"]
