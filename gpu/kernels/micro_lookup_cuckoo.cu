// Keys against the cuckoo index, to measure it.
#include "micro_lookup.h"
#include "cuckoo.h"

KERNEL(micro_lookup_cuckoo, MicroLookupParams, LOOKUP_THREADS) { look_keys_up<CuckooSearch>(p); }
