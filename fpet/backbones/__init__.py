"""Files of backbones: what they hold, what timm makes of it, and what is refused."""
