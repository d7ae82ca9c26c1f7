"""The letters used in shapes, and our names for the paper's symbols.

b batch, c channels, h w pixels, k classes, i j output grid (rows before columns), n regions.

| paper | here | shape |
|---|---|---|
| x | `images` | [b c h w], pixels in [0, 1] |
| s | `scores` | [b k i j], 0/1 votes or fixed-point integers |
| S | `sums` | [b k] |
| Δ_c = s_ŷ - s_c | `delta` | [b k i j] |
| l, 𝓛 | `placements` of a `Threat` | n rectangles or masks of pixels |
| R(l) | `Regions`, made by a `Footprint` from placements | n sets of outputs |
| c_t, ŷ | `labels`, `predicted` | [b] |
| M | `margin` of the loss; a certificate has a `lead` | |

Comments beside the tensors give their shapes. The aliases below say which kind of tensor a function takes.
"""

from torch import Tensor

Images = Tensor  # [b c h w]
Scores = Tensor  # [b k i j]
Labels = Tensor  # [b]
