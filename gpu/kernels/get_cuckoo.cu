// A batch of requests over the cuckoo index. Blocks of any number share the batch.
#include "get.h"
#include "cuckoo.h"

KERNEL(get_cuckoo, GetParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  get<CuckooSearch>(p, shared_memory<GetShared>());
}
