// What an index says of a key.
#pragma once
#include "layout.h"

struct Found {
  u32 hint, location;
  // Of a hit, where the index knows them.
  u32 flags, value_len;
};
