/*
 * Which GID the Rust client's shim takes, of a device that is not there: an address stands in its table for RoCE v1 and
 * v2, and on the second port alone. Only what asks the device is replaced. Exit status 1 if it is another one.
 */
#include "../../../tools/client/src/verbs.c"

#include <stdio.h>

/* What the table has: the address 10.0.0.5 for v1 and then for v2, both behind a link-local one. */
static const struct {
	uint8_t port, last;
	uint32_t type;
} TABLE[] = {
	{ 1, 1, IBV_GID_TYPE_ROCE_V2 },
	{ 2, 1, IBV_GID_TYPE_ROCE_V2 },
	{ 2, 5, IBV_GID_TYPE_ROCE_V1 },
	{ 2, 5, IBV_GID_TYPE_ROCE_V2 },
};

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	memset(attr, 0, sizeof *attr);
	attr->phys_port_cnt = 3;
	return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	(void)context;
	((struct ibv_port_attr *)attr)->gid_tbl_len = 4;
	return port == 3;
}

/* The shim before asked this. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int why = _ibv_query_gid_ex(context, port, index, &entry, 0, sizeof entry);
	*gid = entry.gid;
	return why;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t size)
{
	(void)context;
	(void)flags;
	memset(entry, 0, size);
	if (index >= sizeof TABLE / sizeof *TABLE || TABLE[index].port != port)
		return ENODATA;
	entry->gid_type = TABLE[index].type;
	entry->gid.raw[15] = TABLE[index].last;
	return 0;
}

int main(void)
{
	struct ibv_context device = { 0 };
	union ibv_gid gid = { .raw = { 0 } };
	uint8_t port = 0;
	int index = -1;
	gid.raw[15] = 5;
	if (find_gid(&device, &gid, &port, &index) || port != 2 || index != 3) {
		printf("port %d, index %d\n", port, index);
		return 1;
	}
	gid.raw[15] = 6;
	return find_gid(&device, &gid, &port, &index) ? 0 : 1;
}
