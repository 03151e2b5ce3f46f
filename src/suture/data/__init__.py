import cv2

# Suture works on many frames at a time, one OpenCV thread each; and a forked worker would wait for ever for OpenCV
# threads that only its parent has.
cv2.setNumThreads(1)
