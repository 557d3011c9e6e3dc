// The layouts as the kernels' compiler sees them: size, then every field's offset, in the order of
// gpu/src/layout_check.rs.
#include "kernels/setassoc.h"

#include <cstddef>

#define AT(type, field) uint32_t(offsetof(type, field))

extern "C" const uint32_t gnomon_layouts[] = {
    sizeof(Entry), AT(Entry, slot), AT(Entry, off), AT(Entry, len), AT(Entry, l3), AT(Entry, l4),
    AT(Entry, flags), AT(Entry, mark),
    sizeof(KeyDesc), AT(KeyDesc, off), AT(KeyDesc, len), AT(KeyDesc, hint), AT(KeyDesc, location),
    sizeof(ReqDesc), AT(ReqDesc, verdict), AT(ReqDesc, reason), AT(ReqDesc, verb),
    AT(ReqDesc, n_keys), AT(ReqDesc, payload_off), AT(ReqDesc, payload_len), AT(ReqDesc, keys),
    sizeof(ReplyHead), AT(ReplyHead, len), AT(ReplyHead, has_line), AT(ReplyHead, sum),
    AT(ReplyHead, flags), AT(ReplyHead, value_len), AT(ReplyHead, bytes),
    sizeof(PacketRegion), AT(PacketRegion, base), AT(PacketRegion, slot_bytes),
    AT(PacketRegion, slots),
    sizeof(HashKey), AT(HashKey, k0), AT(HashKey, k1),
    sizeof(SetTable), AT(SetTable, sets), AT(SetTable, keys), AT(SetTable, n_sets),
    AT(SetTable, key_max),
    sizeof(Set), AT(Set, tags), AT(Set, lock), AT(Set, locations), AT(Set, stamps),
    sizeof(Way), AT(Way, flags), AT(Way, value_len), AT(Way, key_len),
    sizeof(Bucket), AT(Bucket, cells),
    sizeof(CuckooTable), AT(CuckooTable, buckets), AT(CuckooTable, n_buckets),
    AT(CuckooTable, kicks_max),
    sizeof(Index), AT(Index, key), AT(Index, tables), AT(Index, cuckoo),
    sizeof(Place), AT(Place, entries), AT(Place, descs), AT(Place, heads), AT(Place, n),
    AT(Place, now), AT(Place, rung), AT(Place, done),
    sizeof(GetParams), AT(GetParams, packets), AT(GetParams, index), AT(GetParams, place),
    AT(GetParams, arrived),
    sizeof(ServeParams), AT(ServeParams, packets), AT(ServeParams, index), AT(ServeParams, places),
    AT(ServeParams, arrived), AT(ServeParams, control), AT(ServeParams, n_places),
    AT(ServeParams, blocks_per_place),
    sizeof(Control), AT(Control, stop), AT(Control, beat), AT(Control, exit_after),
    AT(Control, patience),
    sizeof(Op), AT(Op, hash), AT(Op, location), AT(Op, flags), AT(Op, value_len), AT(Op, key_off),
    AT(Op, key_len), AT(Op, kind),
    sizeof(UpdateCounts), AT(UpdateCounts, inserted), AT(UpdateCounts, replaced),
    AT(UpdateCounts, removed), AT(UpdateCounts, absent), AT(UpdateCounts, evicted),
    AT(UpdateCounts, moved), AT(UpdateCounts, overflowed),
    sizeof(UpdateParams), AT(UpdateParams, index), AT(UpdateParams, ops), AT(UpdateParams, keys),
    AT(UpdateParams, counts), AT(UpdateParams, n), AT(UpdateParams, now),
    sizeof(DigestParams), AT(DigestParams, key), AT(DigestParams, bytes),
    AT(DigestParams, lengths), AT(DigestParams, hashes), AT(DigestParams, sums),
    AT(DigestParams, n), AT(DigestParams, stride),
    sizeof(MicroReadParams), AT(MicroReadParams, from), AT(MicroReadParams, to),
    AT(MicroReadParams, sum), AT(MicroReadParams, items), AT(MicroReadParams, item_bytes),
    AT(MicroReadParams, stride), AT(MicroReadParams, to_stride), AT(MicroReadParams, lanes),
    AT(MicroReadParams, groups), AT(MicroReadParams, rounds), AT(MicroReadParams, seed),
    AT(MicroReadParams, random),
    sizeof(MicroPingParams), AT(MicroPingParams, bell), AT(MicroPingParams, answer),
    AT(MicroPingParams, answers), AT(MicroPingParams, patience), AT(MicroPingParams, pause_ns),
    sizeof(MicroEmptyParams), AT(MicroEmptyParams, runs),
    KEYS_MAX, HEAD_BYTES_MAX, WAYS, TABLES, CELLS, GET_SHARED_BYTES, DIGEST_SHARED_BYTES,
    way_bytes(16), way_bytes(32), way_bytes(64), way_bytes(128), way_bytes(250),
};
extern "C" const uint32_t gnomon_layouts_len = sizeof gnomon_layouts / sizeof *gnomon_layouts;
