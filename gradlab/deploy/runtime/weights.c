/* ---- the weights file ---- */
static uint32_t gl_crc32(const unsigned char *data, uint64_t size) {
  uint32_t table[4][256], crc = 0xffffffffu;
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1u ? 0xedb88320u ^ (c >> 1) : c >> 1;
    table[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; ++i)
    for (int t = 1; t < 4; ++t) table[t][i] = table[0][table[t - 1][i] & 255u] ^ (table[t - 1][i] >> 8);
  uint64_t at = 0;
  for (; at + 4 <= size; at += 4) {
    crc ^= (uint32_t)data[at] | (uint32_t)data[at + 1] << 8 | (uint32_t)data[at + 2] << 16 | (uint32_t)data[at + 3] << 24;
    crc = table[3][crc & 255u] ^ table[2][crc >> 8 & 255u] ^ table[1][crc >> 16 & 255u] ^ table[0][crc >> 24];
  }
  for (; at < size; ++at) crc = table[0][(crc ^ data[at]) & 255u] ^ (crc >> 8);
  return crc ^ 0xffffffffu;
}
static uint32_t gl_u32(const unsigned char *p) { uint32_t v; memcpy(&v, p, sizeof v); return v; }
static uint64_t gl_u64(const unsigned char *p) { uint64_t v; memcpy(&v, p, sizeof v); return v; }

typedef struct { const char *name; uint32_t dtype, rank; int64_t shape[8]; uint64_t offset, size; } gl_entry;
static const gl_entry gl_entries[] = {
@ENTRIES
};

/* Whether these bytes are the weights that this file was made with: nothing in them is believed before it is compared. */
static int gl_check_weights(const unsigned char *data, uint64_t size) {
  if (size < 64 || memcmp(data, "GLWEIGHT", 8) != 0) return @P_FORMAT;
  if (gl_u32(data + 12) != 0x01020304u) return @P_ENDIAN;
  if (gl_u32(data + 8) != 1u) return @P_VERSION;
  if (size != @SIZE || gl_u64(data + 16) != size) return @P_SIZE;
  if (gl_u32(data + 24) != @COUNT || gl_u32(data + 28) != 192u || gl_u64(data + 32) != @FINGERPRINT) return @P_MISMATCH;
  if (gl_u32(data + 40) != gl_crc32(data + 64, @COUNT * 192u)) return @P_CHECKSUM;
  const uint64_t count = @COUNT;
  for (uint64_t i = 0; i < count; ++i) {
    const gl_entry *wanted = &gl_entries[i];
    const unsigned char *found = data + 64 + 192 * i;
    if (strncmp((const char *)found, wanted->name, 88) != 0 || gl_u32(found + 88) != wanted->dtype || gl_u32(found + 92) != wanted->rank) return @P_MISMATCH;
    if (memcmp(found + 96, wanted->shape, 64) != 0 || gl_u64(found + 160) != wanted->offset || gl_u64(found + 168) != wanted->size) return @P_MISMATCH;
    if (gl_u32(found + 176) != gl_crc32(data + wanted->offset, wanted->size)) return @P_CHECKSUM;
  }
  return @P_OK;
}
