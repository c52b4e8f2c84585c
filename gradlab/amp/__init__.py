"""Mixed precision, as in `torch.amp`: `autocast` lets operations choose their precision, `GradScaler` keeps small gradients from vanishing
in float16, and `custom_fwd`, `custom_bwd` fit an `autograd.Function` in. docs/amp.md tells more."""

from gradlab.amp.autocast_mode import autocast as autocast, is_autocast_available as is_autocast_available
from gradlab.amp.custom import custom_bwd as custom_bwd, custom_fwd as custom_fwd
from gradlab.amp.grad_scaler import GradScaler as GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
