// Batches of all rings over the set-associative index, until stopped. All blocks must run at once.
#include "serve.h"
#include "setassoc.h"

KERNEL(serve_setassoc, ServeParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  serve<SetSearch>(p, shared_memory<GetShared>());
}
