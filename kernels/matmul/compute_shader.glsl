// C = A * B with tiles of both in shared memory, for any card that has OpenGL. It may be run in several
// dispatches, a sub-matrix of C each: none has to last as long as the whole product.
layout(local_size_x = TILE, local_size_y = TILE) in;

layout(std430, binding = 0) readonly buffer A { float a[]; };
layout(std430, binding = 1) readonly buffer B { float b[]; };
layout(std430, binding = 2) writeonly buffer C { float c[]; };

uniform int m, n, k;
uniform int x0, y0;  // the column and the row of C where this dispatch begins

// A shader's buffer ends before 2^31 elements, so that int is wide enough for offsets.
shared float a_tile[TILE][TILE];
shared float b_tile[TILE][TILE];

void main()
{
    const int x = int(gl_LocalInvocationID.x);
    const int y = int(gl_LocalInvocationID.y);
    const int column = x0 + int(gl_GlobalInvocationID.x);
    const int row = y0 + int(gl_GlobalInvocationID.y);

    float sum = 0.0;
    for (int first = 0; first < k; first += TILE) {
        // What lies outside a matrix counts as zero, so that no size needs a loop of its own.
        a_tile[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.0;
        b_tile[y][x] = first + y < k && column < n ? b[(first + y) * n + column] : 0.0;
        barrier();
        for (int i = 0; i < TILE; ++i)
            sum += a_tile[y][i] * b_tile[i][x];
        barrier();
    }
    if (row < m && column < n)
        c[row * n + column] = sum;
}
