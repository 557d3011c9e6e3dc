// Batches of all rings over rows, until stopped. All blocks must run at once.
#include "serve.h"
#include "rows.h"

KERNEL(serve_rows, ServeParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  serve<RowSearch>(p, shared_memory<GetShared>());
}
