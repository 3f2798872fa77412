"""Room tuning."""
from tuccl.tuning.brackets import *
from tuccl.tuning.convergence import *
from tuccl.tuning.knob_grid import *
from tuccl.tuning.mraco import *
from tuccl.tuning.plain_searches import *
from tuccl.tuning.record import *
from tuccl.tuning.search import *
from tuccl.tuning.space import *
SEARCHES={s.name:s for s in (MracoSearch,RandomSearch,GridSearch,CoordinateSearch)}
