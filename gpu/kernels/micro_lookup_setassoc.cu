// Keys against the set-associative index, to measure it.
#include "micro_lookup.h"
#include "setassoc.h"

KERNEL(micro_lookup_setassoc, MicroLookupParams, LOOKUP_THREADS) { look_keys_up<SetSearch>(p); }
