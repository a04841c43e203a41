"""Files of backbone weights: their formats and names, the timm models that they fit, and what is refused."""

from fpet._torchvision import declare_missing_operators

declare_missing_operators()  # before any module of this package imports timm
