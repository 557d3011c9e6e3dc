// A batch of requests over rows. Blocks of any number share the batch.
#include "get.h"
#include "rows.h"

KERNEL(get_rows, GetParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  get<RowSearch>(p, shared_memory<GetShared>());
}
