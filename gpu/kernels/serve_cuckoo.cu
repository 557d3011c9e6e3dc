// Batches of all rings over the cuckoo index, until stopped. All blocks must run at once.
#include "serve.h"
#include "cuckoo.h"

KERNEL(serve_cuckoo, ServeParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  serve<CuckooSearch>(p, shared_memory<GetShared>());
}
