# For parts that need torch's C++ interface, which is compatible within one minor version, while all others use
# the stable ABI.
#
# Such a part is built if it compiles, and left out with a warning if a later torch has changed that interface:
# it must not make syncfree uninstallable. The file's name contains the torch version, so that files for several
# versions can be side by side.
string(REGEX REPLACE "^([0-9]+\\.[0-9]+)\\.[0-9]+(\\+.*)?$" "\\1" SYNCFREE_TORCH_MINOR "${TORCH_VERSION}")

# check_torch_source(<result> <sources> <loss> [<include directory>...]): whether the sources compile with
# torch's headers; warns of the loss if they do not.
function(check_torch_source result sources loss)
  set(compiles ${result}_${TORCH_VERSION})
  if(NOT ${compiles})
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    try_compile(${compiles} "${CMAKE_BINARY_DIR}/${result}" SOURCES ${sources}
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${TORCH_DIR}/include;${ARGN}" -DCMAKE_UNITY_BUILD=ON
        -DCMAKE_UNITY_BUILD_BATCH_SIZE=0
      CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON OUTPUT_VARIABLE errors)
  endif()
  if(NOT ${compiles})
    message(WARNING "syncfree: ${sources} do not compile against torch ${TORCH_VERSION}, so ${loss}. All else "
      "works.\n${errors}")
  endif()
  set(${result} "${${compiles}}" PARENT_SCOPE)
endfunction()
