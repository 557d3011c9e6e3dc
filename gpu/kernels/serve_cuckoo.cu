// Batches over the cuckoo index, for as long as the host wants. All blocks must run at
// once; `blocks_per_place` of them share the batches of a place.
#include "serve.h"
#include "cuckoo.h"

KERNEL(serve_cuckoo, ServeParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  serve<CuckooSearch>(p, shared_memory<GetShared>());
}
