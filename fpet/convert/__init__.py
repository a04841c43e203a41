"""Files of other projects to files of this one, and back: adapters in `from_published` and `from_peft`, the way back in
`published_bytes` and `peft_files`, backbones in `read_transformers`."""

from fpet.convert.catalog import Published as Published
from fpet.convert.catalog import look_up as look_up
from fpet.convert.peft_writer import peft_files as peft_files
from fpet.convert.published import published_bytes as published_bytes
from fpet.convert.to_tasks import Supplement as Supplement
from fpet.convert.to_tasks import from_peft as from_peft
from fpet.convert.to_tasks import from_published as from_published
from fpet.convert.transformers import read_transformers as read_transformers
