// A batch of requests over the set-associative index. Blocks of any number share the batch.
#include "get.h"
#include "setassoc.h"

KERNEL(get_setassoc, GetParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  get<SetSearch>(p, shared_memory<GetShared>());
}
