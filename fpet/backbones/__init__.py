"""Files of backbones: what they hold, what timm makes of it, and what is refused."""

from fpet._torchvision import declare_missing_operators

declare_missing_operators()  # before any module of this package imports timm
